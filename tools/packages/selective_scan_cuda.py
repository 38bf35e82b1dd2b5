"""Stands for mamba_ssm 2.3.2's extension (csrc/selective_scan), which mamba_ssm imports: its functions are not recorded yet."""
