"""`nodevitals hub`, which starts the cluster's service, and the commands that ask a running one."""
