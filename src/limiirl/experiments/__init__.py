"""Experiments that can be interrupted, resumed and distributed.

A `Spec` and a seed determine a trial (`run_trial`), and a `Study` compares settings in the same worlds. `run_studies`
runs the trials that are missing from a `Store`, and `Results` returns the records of a study as arrays over worlds.
`STUDIES` contains the studies of the paper and further studies. `run_drivers` runs the driver experiment with the same
kind of store and executors.
"""

from limiirl.experiments.claims import (
    BASELINE,
    CAUSAL_GEVD,
    FAILS,
    HARD,
    HOLDS,
    MARGINS,
    N_HEADLINES,
    NEAR,
    OPEN,
    RANDOM,
    SUPERVISED,
    UNIFORM,
    Finding,
    at_most,
    compare_cells,
    get_symbol,
    judge_claims,
)
from limiirl.experiments.drivers import (
    DESTINATION_METHODS,
    DRIVER_METHODS,
    DriverData,
    DriverExample,
    DriverPlan,
    DriverResults,
    DriverRow,
    DriverSpec,
    driver_example,
    read_drivers,
    run_drivers,
)
from limiirl.experiments.record import DriverRecord, Record
from limiirl.experiments.results import MEASURES, NAMES, TABLE1, TARGETS, TIES, Results, WorldExample, verdict
from limiirl.experiments.run import RunCounts, run_studies, store_examples
from limiirl.experiments.spec import (
    AGENT_WORLDS,
    BASE,
    FULL_GMM,
    METHODS,
    TRUE_LABELS,
    Point,
    Setting,
    Spec,
    Study,
    method_spec,
    parameters,
)
from limiirl.experiments.store import Store
from limiirl.experiments.studies import (
    BEYOND_MODELS,
    BEYOND_STARTS,
    EARLY_STOPS,
    FIXED_LENGTH,
    GROUPS,
    ML_IRL,
    PAPER_LENGTH,
    STUDIES,
    SWEEPS,
    WARM,
    choose_studies,
    iterate_trials,
    model_of,
    start_of,
)
from limiirl.experiments.trial import make_mixture, make_problem, run_trial, with_agents

__all__ = [
    "AGENT_WORLDS", "BASE", "BASELINE", "BEYOND_MODELS", "BEYOND_STARTS", "CAUSAL_GEVD", "DESTINATION_METHODS",
    "DRIVER_METHODS", "EARLY_STOPS", "FAILS", "FIXED_LENGTH", "FULL_GMM", "GROUPS", "HARD", "HOLDS", "MARGINS",
    "MEASURES", "METHODS", "ML_IRL", "NAMES", "NEAR", "N_HEADLINES", "OPEN", "PAPER_LENGTH", "RANDOM", "STUDIES",
    "SUPERVISED", "SWEEPS", "TABLE1", "TARGETS", "TIES", "TRUE_LABELS", "UNIFORM", "WARM", "DriverData",
    "DriverExample", "DriverPlan", "DriverRecord", "DriverResults", "DriverRow", "DriverSpec", "Finding", "Point",
    "Record", "Results", "RunCounts", "Setting", "Spec", "Store", "Study", "WorldExample", "at_most",
    "choose_studies", "compare_cells", "driver_example", "get_symbol", "iterate_trials", "judge_claims",
    "make_mixture", "make_problem", "method_spec", "model_of", "parameters", "read_drivers", "run_drivers",
    "run_studies", "run_trial", "start_of", "store_examples", "verdict", "with_agents",
]  # fmt: skip
