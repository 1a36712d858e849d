r"""Evaluations: a prepared state and many strategies, with each run in its own fork.

For example::

    from atoll import Sandbox
    from atoll.evals import Evaluation

    def task(sandbox, strategy):
        return sandbox.run(f"sort {strategy} words.txt | head -1").stdout == "atoll\n"

    with Sandbox.create() as prepared:
        prepared.files.write("words.txt", "reef\natoll\n")
        results = Evaluation(prepared, {"up": "", "down": "-r"}, task).run()
    print(results)
"""

from atoll.evals.charging import charge
from atoll.evals.evaluation import Evaluation, Keep
from atoll.evals.results import Results
from atoll.evals.rows import Row, Status, Summary

__all__ = ["Evaluation", "Keep", "Results", "Row", "Status", "Summary", "charge"]
