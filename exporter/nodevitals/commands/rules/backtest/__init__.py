"""`nodevitals rules backtest`: how often the alerts would have fired over the last days."""
