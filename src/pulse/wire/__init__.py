"""What travels between pulsed and its clients. `v1` is generated from proto/ and never edited."""
