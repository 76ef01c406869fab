"""How does a wake leave the house?"""
