"""RepairManager's files as Prometheus rules and an Alertmanager configuration.

Its keys are found by their last name, wherever they are in a file: sites nest them differently.
Passwords are neither read nor repeated.
"""
