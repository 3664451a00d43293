"""A module that no daemon should have imported when it forks."""

from __future__ import annotations

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
