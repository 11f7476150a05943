"""`nodevitals rules`: rule files checked, rendered, and imported. Not part of the agent."""
