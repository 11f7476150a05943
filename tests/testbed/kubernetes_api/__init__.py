"""One Kubernetes API server of the test bed; each user registers its kinds and its role.

`server` has HTTP, `failures` how it fails, `api` accounts and answers, `store` the objects; what
only one kind has is a handler of its module.
"""
