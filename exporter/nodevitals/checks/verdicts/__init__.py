"""What results mean: figures, what is slow or failed, and the verdict that follows."""
