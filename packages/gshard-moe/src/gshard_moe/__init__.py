"""GShard"""
