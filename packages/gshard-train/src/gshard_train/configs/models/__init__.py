"""What is trained: the models of the paper, one file each, and `tiny.gin` to shrink any of them."""
