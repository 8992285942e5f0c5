// Graphs and workspaces, under every policy, with the 1st, 2nd, ... last call failing in each way.
#include "failure/operations_graphs.hpp"

namespace failure_graph_sweep_test {
using namespace test;

TEST_CASE("sweep: graphs") { sweep_all(graphs()); }

TEST_CASE("sweep: workspaces") { sweep_all(workspaces()); }
} // namespace failure_graph_sweep_test
