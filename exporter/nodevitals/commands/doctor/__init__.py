"""`nodevitals doctor`: is the agent of this node, and the pipeline behind it, whole?"""
