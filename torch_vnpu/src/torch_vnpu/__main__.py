"""`python -m torch_vnpu` is the command `vnpu`."""

from torch_vnpu.cli import main

main()
