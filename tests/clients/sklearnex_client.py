# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fits estimators of scikit-learn-intelex on the GPU, and compares them with scikit-learn's own.

usage: sklearnex_client.py [ESTIMATOR]...      default: all that have a form for GPUs

One line per estimator and type of numbers, with "ok" or what went wrong, and an exit status of 1 if any
failed. Nothing may run on the host instead. Forests draw random numbers of their own, so their scores are
compared; all others give the same numbers up to rounding.
"""

import importlib
import sys
import traceback
import warnings

import numpy as np
from sklearnex import config_context

ON_GPU = {"target_offload": "gpu:0", "allow_fallback_to_host": False, "allow_sklearn_after_onedal": False}
ROWS, COLUMNS, CLASSES = 400, 8, 3
TOLERANCE = 2e-3


class Case:
    """An estimator: where sklearnex has it, what it takes, what of it is compared."""

    def __init__(self, module, compared, *, target=None, own=None, name=None, **arguments):
        self.module, self.compared, self.target = module, compared, target
        # The module and the name in scikit-learn, where they differ: an incremental estimator has the results of
        # the plain one.
        self.own, self.name = own or module, name
        self.arguments = arguments

    def fitted(self, library, name, numbers, classes, values, arguments):
        estimator = getattr(importlib.import_module(library), name)(**arguments)
        given = [numbers] + {"classes": [classes], "values": [values], None: []}[self.target]
        return estimator.fit(*given)


FORESTS = {"n_estimators": 40, "random_state": 1}
NEIGHBOURS = {"algorithm": "brute", "n_neighbors": 5}
CASES = {
    "KMeans": Case("cluster", "inertia_", n_clusters=3, init=np.eye(3, COLUMNS), n_init=1),
    "DBSCAN": Case("cluster", "labels_", eps=1.9, min_samples=4),
    "PCA": Case("decomposition", "explained_variance_", n_components=3, svd_solver="covariance_eigh"),
    # scikit-learn's own is an approximation.
    "IncrementalPCA": Case(
        "preview.decomposition", "explained_variance_", own="decomposition", name="PCA", n_components=3
    ),
    "LinearRegression": Case("linear_model", "coef_", target="values"),
    "IncrementalLinearRegression": Case("linear_model", "coef_", target="values", name="LinearRegression"),
    "Ridge": Case("linear_model", "coef_", target="values", alpha=0.5),
    "IncrementalRidge": Case("linear_model", "coef_", target="values", name="Ridge", alpha=0.5),
    "LogisticRegression": Case("linear_model", "predict_proba", target="classes", solver="newton-cg"),
    "EmpiricalCovariance": Case("preview.covariance", "covariance_", own="covariance"),
    "IncrementalEmpiricalCovariance": Case("covariance", "covariance_", name="EmpiricalCovariance"),
    "KNeighborsClassifier": Case("neighbors", "predict", target="classes", **NEIGHBOURS),
    "KNeighborsRegressor": Case("neighbors", "predict", target="values", **NEIGHBOURS),
    "NearestNeighbors": Case("neighbors", "kneighbors", **NEIGHBOURS),
    "SVC": Case("svm", "predict", target="classes", kernel="rbf"),
    "RandomForestClassifier": Case("ensemble", "score", target="classes", **FORESTS),
    "RandomForestRegressor": Case("ensemble", "score", target="values", **FORESTS),
    "ExtraTreesClassifier": Case("ensemble", "score", target="classes", **FORESTS),
    "ExtraTreesRegressor": Case("ensemble", "score", target="values", **FORESTS),
}
# One class against the other: more would be several estimators.
TWO_CLASSES = {"LogisticRegression", "SVC"}


def result(estimator, compared, numbers, answers):
    if compared == "score":
        return estimator.score(numbers, answers)
    if compared == "kneighbors":
        return estimator.kneighbors(numbers)[0]
    found = getattr(estimator, compared)
    return np.asarray(found(numbers) if callable(found) else found)


def check(name, dtype):
    case, random = CASES[name], np.random.default_rng(7)
    numbers = random.standard_normal((ROWS, COLUMNS)).astype(dtype)
    values = (numbers @ np.arange(1, COLUMNS + 1)).astype(dtype)
    classes = np.digitize(values, np.quantile(values, np.linspace(0, 1, CLASSES + 1)[1:-1]))
    if name in TWO_CLASSES:
        classes = (classes > 0).astype(int)
    data = numbers, classes, values
    answers = values if case.target == "values" else classes
    with config_context(**ON_GPU):
        ours = case.fitted(f"sklearnex.{case.module}", name, *data, case.arguments)
        found = result(ours, case.compared, numbers, answers)
    theirs = case.fitted(f"sklearn.{case.own}", case.name or name, *data, case.arguments)
    expected = result(theirs, case.compared, numbers, answers)
    tolerance = 0.05 if case.compared == "score" else TOLERANCE
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def main():
    warnings.simplefilter("ignore")
    failed = 0
    for name in sys.argv[1:] or CASES:
        for dtype in "f4", "f8":
            try:
                check(name, dtype)
                told = "ok"
            except Exception as error:
                failed += 1
                traceback.print_exc()
                told = " ".join(f"FAILED: {error}".split())[:200]
            print(f"{name}, {dtype}: {told}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
