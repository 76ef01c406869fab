"""What the test of request costs is made of: what is sent, to which inputs, and how it is measured."""
