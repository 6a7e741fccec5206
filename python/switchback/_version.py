# SPDX-License-Identifier: Apache-2.0
"""The package's version. It is independent of the library's; _abi.py has the ABI that is needed."""

__version__ = "0.1.0"
