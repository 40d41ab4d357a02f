"""The stages of `import torch_vnpu`, one module each, and the rule that they run once."""
