"""`nodevitals fabric`: bandwidth tests between nodes, started by an operator."""
