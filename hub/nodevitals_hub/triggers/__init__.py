"""What asks for checks beside people: custom resources, schedules, alerts."""
