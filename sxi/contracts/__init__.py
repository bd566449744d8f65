"""The contract rules: one entry each, holding what is checked, said, explained and shown.

    contracts.count_is_a_number(span, name="loss/high", count=ArrayType("bool"), text="(> loss 9.0)")

raises the error where the contract does not hold; `RULE.refuse(span, ...)` raises it where the
caller has found that already.  The errors, `sxi explain`, docs/contracts.md and the tests of every
rule are derived from the entries.  To add a rule, add one function to the file of its kind, under
the next free number, name it here, and call it where the contract applies; then
`python -m sxi.contracts` writes the page anew.  A number is never used again for something else.

The place of an error is the operand that breaks the rule where there is one, else the form; the
caret in the rule's program shows which.
"""

from sxi.contracts.graphs import (
    a_parameter_is_declared_alike,
    an_optimizer_ends_in_update,
    branches_are_static,
    graphs_do_nothing_to_the_host,
    leading_sizes_agree,
    objective_is_a_numeric_scalar,
    parameters_are_made_by_the_model,
    shapes_are_static,
)
from sxi.contracts.guards import (
    a_tap_holds_diagnostics_only,
    bound_is_a_static_number,
    count_is_a_number,
    counts_take_the_right_operand,
    guard_has_a_step,
    reporting_stands_in_a_graph,
    these_contexts_report_nothing,
)
from sxi.contracts.page import page_of_rules
from sxi.contracts.reporting import (
    metadata_is_not_the_runtimes,
    metadata_is_pairs,
    metadata_is_static,
    name_is_valid,
    one_name_one_kind,
    reduce_is_known,
    value_is_a_numeric_scalar,
)
from sxi.contracts.rule import RULES, AsWritten, Rule
from sxi.contracts.runs import (
    every_parameter_has_a_group,
    run_options_are_consistent,
    run_reports_within_its_limit,
    the_curriculum_reads_metrics,
)

__all__ = [
    "RULES",
    "AsWritten",
    "Rule",
    "a_parameter_is_declared_alike",
    "a_tap_holds_diagnostics_only",
    "an_optimizer_ends_in_update",
    "bound_is_a_static_number",
    "branches_are_static",
    "count_is_a_number",
    "counts_take_the_right_operand",
    "every_parameter_has_a_group",
    "graphs_do_nothing_to_the_host",
    "guard_has_a_step",
    "leading_sizes_agree",
    "metadata_is_not_the_runtimes",
    "metadata_is_pairs",
    "metadata_is_static",
    "name_is_valid",
    "objective_is_a_numeric_scalar",
    "one_name_one_kind",
    "page_of_rules",
    "parameters_are_made_by_the_model",
    "reduce_is_known",
    "reporting_stands_in_a_graph",
    "run_options_are_consistent",
    "run_reports_within_its_limit",
    "shapes_are_static",
    "the_curriculum_reads_metrics",
    "these_contexts_report_nothing",
    "value_is_a_numeric_scalar",
]
