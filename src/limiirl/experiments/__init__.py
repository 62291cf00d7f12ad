"""Experiments that can be stopped, resumed and spread: specifications, trials, a store of their records, executors.

A `Spec` and a seed determine a trial; `run_trial` is a pure function of them. A `Study` is a list of settings that are
compared over the same worlds, `run_studies` runs what a `Store` does not have yet, and `Results` are the records of a
study as arrays over worlds. `STUDIES` are those of the paper and those that go beyond it, `GROUPS` names for several.

Where what is:

- a trial: `spec`, `problems` and `agents_trial` (what it is about), `trial` (how it is run), `records` (what came out);
- running many: `running`, on `limiirl.executors`; keeping them: `store`, with `folder` and `shards`;
- which trials: `study` (what one is), `studies_paper`, `studies_models`, `studies_beyond`; `studies` has all by name;
- what they say: `results` (arrays), `verdicts` (rules of the tests), `findings_paper`, `findings_models`,
  `findings_beyond` (claims); `findings` has all by study; `paper` is what the paper reports.
"""

from limiirl.experiments.claims import Finding, findings
from limiirl.experiments.results import Results
from limiirl.experiments.run import Progress, run_studies
from limiirl.experiments.spec import METHODS, Setting, Spec, Study, method_spec, parameters
from limiirl.experiments.store import Store
from limiirl.experiments.studies import GROUPS, STUDIES, choose
from limiirl.experiments.trial import Record, run_trial

__all__ = [
    "GROUPS",
    "METHODS",
    "STUDIES",
    "Finding",
    "Progress",
    "Record",
    "Results",
    "Setting",
    "Spec",
    "Store",
    "Study",
    "choose",
    "findings",
    "method_spec",
    "parameters",
    "run_studies",
    "run_trial",
]
