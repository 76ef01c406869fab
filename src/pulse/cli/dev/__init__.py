"""How does a developer try Pulse, and run a whole application with one command?"""
