"""The names that users may rely on. A new one is a decision: it stands in the changelog."""

import gshard_annotate


def test_public_names():
    names = {name for name in vars(gshard_annotate) if not name.startswith("_")}
    modules = {"annotate", "checks", "inspector", "mesh", "rules"}
    assert names - modules | {"annotate"} == {
        "Collective",
        "DEFAULT_RULES",
        "Rules",
        "annotate",
        "collectives",
        "expect_collectives",
        "make_mesh",
        "mesh_split",
        "replicate",
        "rules_scope",
        "split",
        "tree_shardings",
        "tree_specs",
        "version",
    }
