"""`nodevitals fabric`: bandwidth tests by hand."""
