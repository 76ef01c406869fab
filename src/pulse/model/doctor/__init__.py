"""What a doctor looks at, and how it judges what it finds."""
