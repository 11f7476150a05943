"""`nodevitals init`: the shipped files and what a node has in, the files of a site out."""
