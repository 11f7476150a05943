"""`nodevitals doctor`: checks this node's agent and the pipeline behind it."""
