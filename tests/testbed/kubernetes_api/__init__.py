"""One Kubernetes API server of the test bed; each user registers its kinds and its role.

`server` has HTTP, accounts and failures, `store` has the objects; what only one kind has is a
handler of its module.
"""
