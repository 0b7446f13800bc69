"""What pages answer when they are not found, and since when; see `policies.history.answers`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from policies.history.answers import FAILING, LOST, REDIRECTED, class_of, last_answers
from policies.history.page_state import NO_TIME
from policies.history.visits import STATUS_NONE, Observations
from transforms.batches import schemas
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.state import times

_COUNTED = {REDIRECTED: "pages_redirected", LOST: "pages_gone", FAILING: "pages_failing"}


class ShardAnswers(Statistic):
    """The last answer of each page, null where it was found, and since when its answers are of this class."""

    STATE = (pa.field("answer", pa.int32()), pa.field("answer_since_at", schemas.TIME))
    PAGES = STATE
    SAID = (
        ("pages_redirected", "answered by redirects"),
        ("pages_gone", "gone (404, 410)"),
        ("pages_failing", "whose last fetch failed"),
    )

    def __init__(self, night: ShardNight) -> None:
        self._status = night.carried("answer", STATUS_NONE).astype(np.int16)
        self._since_us = night.carried("answer_since_at", NO_TIME)

    def fold(self, night: ShardNight, rows: Observations) -> None:
        if rows.status is None:
            status = np.full(len(rows), STATUS_NONE, np.int16)
        else:
            status = np.asarray(rows.status, np.int16)
        self._status, self._since_us = last_answers(
            self._status,
            self._since_us,
            night.before.last_attempt_at_us,
            rows.page,
            rows.fetched_at_us,
            status,
            rows.not_modified,
            night.settings.as_of_us,
        )

    def state(self) -> dict[str, pa.Array]:
        found = self._status == STATUS_NONE
        since = np.where(found, NO_TIME, self._since_us)
        return {"answer": pa.array(self._status, pa.int32(), mask=found), "answer_since_at": times(since)}

    @classmethod
    def count(cls, pages: pa.RecordBatch) -> dict[str, int]:
        if "answer" not in pages.schema.names:
            return dict.fromkeys(_COUNTED.values(), 0)
        answers = class_of(pages.column("answer").drop_null().to_numpy().astype(np.int16))
        found = np.bincount(answers, minlength=len(_COUNTED) + 1).tolist()
        return {name: found[kind] for kind, name in _COUNTED.items()}
