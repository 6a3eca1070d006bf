"""The public reports of slow training that the rules were designed on, and where each is tested.

Numbers are the rows of the project's table of user reports. A constructed trace of the symptom, on
which the whole catalogue runs, must give the cause that the users found first; two reports say that
something costs nothing, and there nothing may be found. What leaves no trace has its reason instead.
"""

from __future__ import annotations

from importlib import import_module

import pytest

HOSTS, STEPS = "test_reported_hosts", "test_reported_steps"
RANKS, LINKS = "test_reported_ranks", "test_reported_links"

# Row: (module, test), one or several.
TESTED: dict[int, tuple[tuple[str, str], ...]] = {
    1: (
        (RANKS, "test_random_image_sizes_on_every_gpu"),
        (STEPS, "test_one_process_drives_both_gpus_and_gains_little"),
    ),
    2: ((HOSTS, "test_loss_item_in_every_step_shows_40_ms_of_stream_synchronize"),),
    3: ((HOSTS, "test_one_rank_collects_garbage_for_300_ms_and_the_others_wait"),),
    4: ((RANKS, "test_pauses_of_other_ranks_in_every_gather"),),
    5: ((STEPS, "test_pauses_of_1300_ms_that_come_back"),),
    6: ((HOSTS, "test_cuda_malloc_retries_in_every_step"),),
    7: ((LINKS, "test_accumulation_that_reduces_every_micro_batch_over_hosts"),),
    8: ((LINKS, "test_accumulation_of_fsdp2_whose_no_sync_does_nothing"),),
    9: ((LINKS, "test_three_hosts_over_10_gigabit_ethernet"),),
    10: ((LINKS, "test_two_hosts_without_infiniband"),),
    12: ((LINKS, "test_sharded_model_over_pcie"),),
    13: ((LINKS, "test_sharded_model_over_pcie"),),
    14: ((LINKS, "test_two_gpus_over_pcie_gain_nothing"),),
    15: ((LINKS, "test_copies_between_gpus_that_access_control_sends_through_the_cpu"),),
    17: ((RANKS, "test_all_reduces_that_last_100_ms_longer_on_one_rank"),),
    18: ((RANKS, "test_a_grid_of_one_block_waits_188_ms_for_its_peer"),),
    19: (
        (LINKS, "test_send_and_receive_beside_matrix_products_slow_both"),
        (LINKS, "test_more_channels_than_needed_slow_what_runs_beside"),
    ),
    20: ((HOSTS, "test_every_worker_process_sits_on_one_core"),),
    21: ((STEPS, "test_eight_processes_share_two_cores"),),
    22: ((STEPS, "test_adamw_takes_a_third_of_the_step_after_sharding"),),
    23: ((HOSTS, "test_the_optimizer_dispatches_900_operators"),),
    24: ((STEPS, "test_a_fused_optimizer_gives_back_three_percent"),),
    25: (
        (STEPS, "test_a_fused_optimizer_is_no_chain"),
        (STEPS, "test_a_learning_rate_that_is_a_python_number_compiles_every_step_again"),
    ),
    26: ((STEPS, "test_cuda_graphs_are_recorded_for_nine_sizes"),),
    27: ((RANKS, "test_ddp_and_compile_compile_every_shape_again"),),
    28: (
        (HOSTS, "test_a_value_is_read_for_every_parameter"),
        (STEPS, "test_data_on_a_slow_disk"),
    ),
    29: ((RANKS, "test_data_that_nothing_shards"),),
    30: (
        (HOSTS, "test_rank_0_loads_for_all_and_broadcasts"),
        (RANKS, "test_one_rank_loads_and_sends_to_all"),
    ),
    31: ((HOSTS, "test_rank_0_writes_its_log_in_every_iteration"),),
    32: ((STEPS, "test_a_loss_scale_that_is_read_in_every_step"),),
    33: (
        (RANKS, "test_a_search_for_unused_parameters_that_slows_forward"),
        (RANKS, "test_a_search_for_unused_parameters_without_measurable_impact"),
    ),
}

NOT_TESTED = {
    11: "NCCL fails to start between hosts: a wrong configuration, no step is recorded",
    16: "the model freezes at its first copies between GPUs: a hang without a complete step",
}


def test_every_report_has_a_test_or_a_reason() -> None:
    assert sorted([*TESTED, *NOT_TESTED]) == list(range(1, 34))
    assert len(TESTED) >= 20


@pytest.mark.parametrize("row", TESTED)
def test_the_tests_of_a_report_exist(row: int) -> None:
    for module, name in TESTED[row]:
        assert callable(getattr(import_module(f"tests.rules.{module}"), name))
