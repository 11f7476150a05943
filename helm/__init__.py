"""What describes the values of the chart `helm/nodevitals`, and makes its schema."""
