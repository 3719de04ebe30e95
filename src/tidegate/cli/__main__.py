"""``python -m tidegate.cli`` does what ``tidegate`` does."""

import sys

from tidegate.cli import main

sys.exit(main())
