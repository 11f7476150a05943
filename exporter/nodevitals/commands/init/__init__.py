"""`nodevitals init`: writes a site's files from the shipped ones and the node's hardware."""
