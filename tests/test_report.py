"""`fastsim report`: a page and a picture of a sweep's folder."""

from fastsim.grid import Grid
from fastsim.store.manifest import changed_settings


def test_a_folder_keeps_the_question_beside_its_rows():
    answer = {"question": 'Is "it" so?', "best": ["most completed"], "for_each": ["engine.watermark", "engine.victim"]}
    axes = {"engine.watermark": [0, 0.05], "engine.victim": ["tail", "least_computed"]}
    table = {"engine": {"num_gpu_blocks": 100}, "answer": answer, "sweep": {"axes": axes}}
    grid = Grid.from_mapping(table)
    again = Grid.from_mapping(table | {"answer": {"question": "Another?"}})
    assert grid.spec_hash == again.spec_hash
    assert changed_settings(grid.to_toml(), again.to_toml()) == []
    assert '\n[answer]\nquestion = "Is \\"it\\" so?"\nbest = ["most completed"]\n' in grid.to_toml()
    pinned = Grid.from_mapping(table, ["engine.victim=tail"])
    assert pinned.to_toml().endswith('for_each = ["engine.watermark"]\n')
