#!/usr/bin/env bash
# check_harness.sh BEHAVIOUR COMMAND...: runs one test of the harness fixture under mpiexec (COMMAND)
# and checks how the job ends and what it says.
set -euo pipefail

behaviour=$1
shift

export STAGECOACH_TEST_WATCHDOG_S=30
case $behaviour in
  hangs_* | waits_*) export STAGECOACH_TEST_WATCHDOG_S=2 ;;
esac

code=0
output=$("$@" --gtest_color=no --gtest_filter="*.$behaviour" 2>&1) || code=$?

fail() {
  printf '%s\n%s: %s\n' "$output" "$behaviour" "$1"
  exit 1
}
expect_code() {
  [[ $code -eq $1 ]] || fail "ended with $code instead of $1"
}
expect_text() {
  grep -qF -- "$1" <<<"$output" || fail "did not say: $1"
}
expect_no_text() {
  if grep -qF -- "$1" <<<"$output"; then fail "said: $1"; fi
}

case $behaviour in
  passes)
    expect_code 0
    expect_text '[  PASSED  ] 1 test.'
    expect_no_text 'Failure'
    [[ $(grep -cF '[ RUN ' <<<"$output") -eq 1 ]] || fail 'more than one rank printed'
    ;;
  skips)
    expect_code 0
    expect_text '[rank 0]'
    expect_text '[rank 1]'
    expect_text '[  SKIPPED ] 1 test'
    ;;
  fails_on_rank_0)
    expect_code 1
    expect_text '[rank 0]'
    expect_text 'on purpose'
    expect_text '1 FAILED TEST'
    expect_no_text 'other rank(s)'
    ;;
  hangs_on_all_ranks)
    expect_code 124
    expect_text "Harness.$behaviour: no end after 2 s"
    ;;
  hangs_on_rank_1)
    expect_code 124
    expect_text "[rank 1] Harness.$behaviour: no end after 2 s"
    ;;
  waits_for_a_failed_rank)
    expect_code 124
    expect_text '[rank 1]'
    expect_text 'on purpose'
    expect_text "[rank 0] Harness.$behaviour: no end after 2 s"
    ;;
  *_on_rank_1)
    expect_code 1
    expect_text '[rank 1]'
    expect_text 'on purpose'
    expect_text 'failed on 1 other rank(s)'
    expect_text '1 FAILED TEST'
    ;;
  *)
    fail 'is unknown to check_harness.sh'
    ;;
esac
