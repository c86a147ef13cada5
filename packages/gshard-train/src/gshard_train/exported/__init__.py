"""What an export consists of: tensors by name, a program that runs alone, a README."""
