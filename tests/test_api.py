"""The public face: complete, sorted, light to import, and the same to a type checker."""

import dataclasses
import inspect
import subprocess
import sys

import mmchunks


def test_all_is_sorted_complete_and_real():
    assert mmchunks.__all__ == sorted(mmchunks.__all__)
    assert set(mmchunks.__all__) == set(mmchunks._HOME_OF)
    for name in mmchunks.__all__:
        value = getattr(mmchunks, name)
        assert value.__module__ == f"mmchunks.{mmchunks._HOME_OF[name]}"
        assert value.__doc__


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(mmchunks, "no_such_name")
    assert "from_npy" in dir(mmchunks)


def test_import_is_light():
    code = (
        "import mmchunks, mmchunks.reading.opening, sys;"
        "print([m for m in ('dask', 'distributed', 'cupy', 'rich', 'click', 'numba') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_help_of_a_record_says_what_its_fields_mean():
    records = [getattr(mmchunks, name) for name in mmchunks.__all__]
    for record in filter(dataclasses.is_dataclass, records):
        described = inspect.getdoc(record).partition("\nAttributes\n")[2]
        for field in dataclasses.fields(record):
            assert f"\n{field.name} : " in described, (record, field.name)
