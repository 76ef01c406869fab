"""How does an operator see how things stand: topics, workers, tokens, findings?"""
