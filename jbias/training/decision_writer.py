"""`DecisionWriter`: the files of decisions of a run, decisions/<set>/<step>.parquet."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

from jbias import evals, run_spec
from jbias.evals import decision_files
from jbias.runs import checksums, record_store
from jbias.runtime import files, messages
from jbias.runtime import processes as teams


class DecisionWriter:
    """Writes the decisions of all members to the workdir; the checksums are with the records'."""

    def __init__(
        self,
        spec: run_spec.RunSpec,
        workdir: epath.Path,
        *,
        group: teams.ProcessGroup,
        records: record_store.RecordStore,
        check_lock: Callable[[], None],
    ):
        """Create a writer of decisions; only process 0 writes.

        records: has the checksums of files of decisions. check_lock: called before writing;
        OSError if the workdir is missing or belongs to another process.
        """
        self._spec, self._workdir, self._group = spec, workdir, group
        self._records, self._check_lock = records, check_lock

    def write(
        self, step: int, decided: Mapping[str, Sequence[evals.Decisions]]
    ) -> dict[str, Any]:
        """Write a step's files of decisions; return the checksums of the written files by name.

        A name is the file's path in the workdir. A file that matches its recorded checksum is
        not written again. Only process 0 writes; the other processes return {}.

        decided: by data set, one entry per member.
        """
        self._check_lock()
        new_sums = {}
        branches = self._spec.branches if self._group.is_main else ()
        for dataset, branch in itertools.product(decided, branches):
            path = self._workdir / branch.folder / f"decisions/{dataset}/{step}.parquet"
            name = record_store.relative_name(self._workdir, path)
            if not checksums.damage(path, self._records.sums.get(name)):
                continue
            by_seed = {
                member.seed: of_member
                for member, of_member in zip(
                    self._spec.members, decided[dataset], strict=True
                )
                if member.branch == branch
            }
            with files.translate_os_errors(str(path)):
                new_sums[name] = decision_files.write(path, by_seed)
        return new_sums

    def rewrite(
        self,
        step: int,
        decided: Mapping[str, Sequence[evals.Decisions]] | None,
        say: messages.Say,
    ) -> None:
        """Write the damaged or lost files of a step's decisions again, and log a line.

        The checksums of new files are added to `records.sums`. The line says if a new checksum
        differs from the recorded checksum.

        decided: by data set, one entry per member, as in `write`; for None or an empty mapping,
        nothing is written or logged. say: logs a line.
        """
        if not decided:
            return
        new_sums = self.write(step, decided)
        old_sums = {**new_sums, **self._records.sums}
        differs = any(
            old_sums[name] not in (checksum, checksum[1])
            for name, checksum in new_sums.items()
        )
        difference = ", equal only within tolerance to those lost" if differs else ""
        say(
            f"decisions of step {step} were lost: made anew from its states{difference}"
        )
        self._records.sums |= new_sums
