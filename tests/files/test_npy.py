"""Headers, judged by np.load: whatever it reads we read alike, whatever it refuses we refuse."""

import io
import string
import sys
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mmchunks.errors import HeaderError, LayoutError
from mmchunks.files.layout import Layout
from mmchunks.files.npy import MAGIC, decode, encode, head_nbytes

PLENTY = bytes(range(256)) * 256  # 64 KiB of data for the judge


def read(head, *, max_header_size=10_000):
    return decode(head, max_header_size=max_header_size)


def framed(text, version=1, *, length=None):
    """A header whose text is exactly `text`: nothing is padded."""
    data = text if isinstance(text, bytes) else text.encode("utf-8" if version == 3 else "latin-1")
    width = 2 if version == 1 else 4
    size = len(data) if length is None else length
    return MAGIC + bytes([version, 0]) + size.to_bytes(width, "little") + data


def header(*, descr="'<f4'", fortran_order="False", shape="(3, 2)"):
    return f"{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n"


def values(array):
    """The bytes of every field: padding between them is not promised."""
    if array.dtype.names:
        return [values(array[name]) for name in array.dtype.names]
    return array.tobytes() if array.nbytes else b""  # 2**60 elements of no bytes take a while


def order_of(array):
    """Which axis is contiguous; None where it makes no difference."""
    if not array.nbytes or (array.flags.c_contiguous and array.flags.f_contiguous):
        return None
    return "C" if array.flags.c_contiguous else "F"


def as_python_311_reads(file):
    """Blank the last newline, where spaces follow: NumPy reads both on Python 3.11 only."""
    start = 10 if file[6] == 1 else 12
    text = file[start : start + int.from_bytes(file[8:start], "little")]
    return file[:start] + text.rstrip(b" \t\r\n").ljust(len(text)) + file[start + len(text) :]


def judged(head):
    """What np.load says: shape, dtype, order, offset, and the bytes; or None where it refuses."""
    content = head + PLENTY
    if sys.version_info >= (3, 12) and head[6:7] in {b"\1", b"\2"}:
        content = as_python_311_reads(content)
    file = io.BytesIO(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            array = np.load(file, allow_pickle=False)
        except Exception:  # noqa: BLE001 numpy refuses with errors of every kind
            return None
    return array.shape, array.dtype, order_of(array), file.tell() - array.nbytes, values(array)


def ours(head):
    """What we say, told as `judged` tells it; None where we refuse, or the file is too short."""
    file = head + PLENTY
    try:
        layout = read(file)
    except HeaderError:
        return None
    if layout.stop > len(file):
        return None
    data = np.frombuffer(file, np.uint8, offset=layout.offset) if layout.nbytes else b"\0"
    array = np.ndarray(layout.shape, layout.dtype, data, order=layout.order)
    return array.shape, array.dtype, order_of(array), layout.offset, values(array)


# One line for each oddity that was seen in files of other programs' writers.
READ_BY_NUMPY = {
    "version 2 of any size": framed(header(), 2),
    "version 3": framed(header(), 3),
    "version 3 with utf-8 names": framed(header(descr="[('Größe_µ', '<f4'), ('名', '<i2')]"), 3),
    "latin-1 names": framed(header(descr="[('Größe', '<f4')]")),
    "python 2 shape": framed(header(shape="(3L, 2L)")),
    "python 2 shape, one axis": framed(header(shape="(3L,)")),
    "python 2 shape, version 2": framed(header(shape="(3L, 2L)"), 2),
    "python 2 sub-array": framed(header(descr="[('a', '<f4', (2L,))]")),
    "python 2 with spaces": framed(header(shape="(3 L, 0x2L L)")),
    "python 2 with a comment": framed(header(shape="(3L, 2L)").strip() + " # it's 3L"),
    "python 2 with an L in a name": framed(
        header(descr="[('3L', '<f4'), ('\\' 4L', 'u1')]", shape="(3L,)")
    ),
    "padded to 16": framed(header().strip().ljust(69) + "\n"),
    "padded to 4096": framed(header().strip().ljust(4085) + "\n"),
    "longest that np.load reads": framed(header().strip().ljust(9_999) + "\n"),
    "no newline": framed(header().strip()),
    "newline and then spaces": framed(header() + "   "),
    "carriage return": framed(header().strip() + "\r\n"),
    "only a carriage return": framed(header().strip() + "\r"),
    "tabs": framed("\t" + header().replace(" ", "\t")),
    "spaces in front": framed("   " + header()),
    "newlines inside": framed(header().replace(", ", ",\n")),
    "no spaces at all": framed("{'descr':'<f4','fortran_order':False,'shape':(3,2)}"),
    "no comma before the brace": framed(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}"
    ),
    "comma after the last length": framed(header(shape="(3, 2, )")),
    "comma before the bracket": framed(header(descr="[('a', '<f4'), ]")),
    "another key order": framed("{'shape': (3, 2), 'descr': '<f4', 'fortran_order': True}"),
    "double quotes": framed(header().replace("'", '"')),
    "<i1 for |i1": framed(header(descr="'<i1'")),
    "|u1": framed(header(descr="'|u1'")),
    "|b1, bytes other than 0 and 1 too": framed(header(descr="'|b1'")),
    "big endian": framed(header(descr="'>f8'")),
    "big endian, fortran": framed(header(descr="'>c16'", fortran_order="True")),
    "float16": framed(header(descr="'<f2'")),
    "long double": framed(header(descr=repr(np.dtype("g").str))),
    "native spelling": framed(header(descr="'float'")),
    "datetime": framed(header(descr="'<M8[ns]'")),
    "datetime in steps": framed(header(descr="'<M8[25s]'")),
    "datetime without a unit": framed(header(descr="'<M8'")),
    "timedelta": framed(header(descr="'>m8[m]'")),
    "strings": framed(header(descr="'<U26'")),
    "bytes": framed(header(descr="'|S513'")),
    "void": framed(header(descr="'|V7'")),
    "strings of no length": framed(header(descr="'|S0'")),
    "structure": framed(header(descr="[('a', '<i4'), ('b', '<f8')]")),
    "structure without fields": framed(header(descr="[]")),
    "nested structure": framed(header(descr="[('p', [('x', '<f4'), ('y', '>f4')]), ('q', '|u1')]")),
    "sub-arrays": framed(header(descr="[('v', '<i2', (4,)), ('m', '<f4', (2, 2))]")),
    "sub-array of one element": framed(header(descr="[('v', '<i2', (1,))]")),
    "sub-array of sub-arrays": framed(header(descr="[('v', ('<i2', (2,)), (3,))]")),
    "padding fields": framed(
        header(descr="[('a', '|u1'), ('', '|V7'), ('b', '<u8'), ('', '|V7')]")
    ),
    "a title": framed(header(descr="[(('a title', 'a'), '<f4')]")),
    "comma string": framed(header(descr="'<f4,>i2'")),
    "an escape that python warns about": framed(header(descr=r"[('a\d', '<f4')]")),
    "descr of one element": framed(header(descr="('<f4', (1,))")),
    "descr of no further axes": framed(header(descr="('<f4', ())")),
    "0-d": framed(header(shape="()")),
    "one row": framed(header(shape="(1, 5)", fortran_order="True")),
    "zero size": framed(header(shape="(0,)")),
    "zero size, fortran": framed(header(shape="(3, 0, 2)", fortran_order="True")),
    "64 axes": framed(header(shape=f"({'1,' * 64})")),
}

REFUSED_BY_NUMPY = {
    "empty": b"",
    "half a magic": MAGIC[:4],
    "no length": MAGIC + b"\1\0\x76",
    "another magic": b"\x93NUMPX" + framed(header())[6:],
    "version 4": MAGIC + b"\4\0" + framed(header())[8:],
    "version 1.1": MAGIC + b"\1\1" + framed(header())[8:],
    "a length that is too short": framed(header(), length=40),
    "a length of 0": framed("", 1),
    "utf-8 that is not": framed(header().encode() + b"\xff", 3),
    "spaces after the newline in version 3": framed(header() + "   ", 3),
    "python 2 in version 3": framed(header(shape="(3L, 2L)"), 3),
    "lower-case l": framed(header(shape="(3l,)")),
    "objects": framed(header(descr="'|O'")),
    "objects of python 2": framed(header(descr="'|O8'")),
    "objects in a field": framed(header(descr="[('i', '<i8'), ('o', '|O')]")),
    "objects of no size": framed(header(descr="'|O'", shape="(0,)")),
    "variable-length strings": framed(header(descr="'T'")),
    "negative length": framed(header(shape="(-1,)")),
    "two negative lengths": framed(header(shape="(-2, -3)")),
    "negative length of nothing": framed(header(shape="(-5, 0)")),
    "float length": framed(header(shape="(2.0,)")),
    "bool length": framed(header(shape="(True, 3)")),
    "list for a shape": framed(header(shape="[3, 2]")),
    "number for a shape": framed(header(shape="3")),
    "overflow": framed(header(shape=f"({2**32}, {2**32})")),
    "overflow with a zero": framed(header(shape=f"(0, {2**62}, {2**62})")),
    "a length beyond 64 bits": framed(header(shape=f"({2**64},)")),
    "a length of 3000 digits": framed(header(shape=f"({'9' * 3000},)")),
    "a length of 5000 digits": framed(header(shape=f"({'9' * 5000},)")),
    "a length of 9000 hexadecimal digits": framed(header(shape=f"(0x{'f' * 9000},)")),
    "65 axes": framed(header(shape=f"({'1,' * 65})")),
    "fortran_order that is a number": framed(header(fortran_order="1")),
    "fortran_order that is an expression": framed(header(fortran_order="0 == 1")),
    "an expression": framed(header(shape="(3,) * 2")),
    "a call": framed(header(shape="tuple([3])")),
    "code": framed("__import__('os').getcwd()"),
    "a missing key": framed("{'descr': '<f4', 'shape': (3, 2)}"),
    "an extra key": framed("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}"),
    "bytes for keys": framed(header().replace("'shape'", "b'shape'")),
    "keys that cannot be": framed("{[]: 1}"),
    "a list": framed("[1, 2, 3]"),
    "text after the dict": framed(header().strip() + " x"),
    "a NUL": framed(header().strip() + "\0"),
    "a new line in front": framed("\n " + header()),
    "an open bracket": framed(header().replace("}", "")),
    "descr that is no dtype": framed(header(descr="'<q9'")),
    "descr that is None": framed(header(descr="None")),
    "descr that is empty": framed(header(descr="()")),
    "descr that holds numbers": framed(header(descr="[(1, 2)]")),
    "descr with a name twice": framed(header(descr="[('a', '<f4'), ('a', '<f4')]")),
    "descr of three elements": framed(header(descr="('<f4', (3,))")),
    "descr of no elements": framed(header(descr="('<f4', (0,))")),
    "descr of endless elements": framed(header(descr="('<f4', (99999999, 99999999))")),
    "descr larger than numpy's largest": framed(header(descr="'|V99999999999'")),
    "descr nested 90 deep": framed(header(descr="[('a', " * 90 + "'<O'" + ")]" * 90)),
}


@pytest.mark.parametrize("name", READ_BY_NUMPY)
def test_oddities_that_numpy_reads_are_read_alike_and_in_silence(name):
    verdict = judged(READ_BY_NUMPY[name])
    assert verdict is not None
    assert ours(READ_BY_NUMPY[name]) == verdict


@pytest.mark.parametrize("name", REFUSED_BY_NUMPY)
def test_what_numpy_refuses_is_a_header_error_in_one_short_sentence(name):
    assert judged(REFUSED_BY_NUMPY[name]) is None
    with pytest.raises(HeaderError) as caught:
        read(REFUSED_BY_NUMPY[name] + PLENTY if len(REFUSED_BY_NUMPY[name]) > 12 else b"")
    assert len(str(caught.value)) < 400


def test_an_old_spelling_that_some_numpys_warn_about_passes_in_silence():
    head = framed(header(descr="'|a5'"))
    assert ours(head) == judged(head)


def test_an_array_of_nothing_that_no_file_could_hold_is_refused_though_numpy_reads_it():
    head = framed(header(descr="'|u1'", shape=f"(0, {2**63 - 1})"))
    assert judged(head) is not None
    with pytest.raises(HeaderError, match="more bytes than a file can have"):
        read(head)


HOSTILE = {
    "brackets": "(" * 9_990,
    "closed brackets": "(" * 4_995 + ")" * 4_995,
    "braces": "{0:" * 3_330,
    "minus signs": "-" * 9_989 + "1",
    "sum": "1+" * 4_995 + "1",
    "attributes": "a." * 4_995 + "a",
    "comparisons": "1<" * 4_995 + "1",
    "lambdas": "lambda:" * 1_400 + "1",
    "numbers": f"[{'1,' * 4_990}]",
    "empty tuples": f"[{'(),' * 3_330}]",
    "f-strings": "f'{" * 3_330,
    "python 2 numbers": f"[{'1L,' * 3_300}]",
    "unending python 2": "(1L," * 2_400,
    "unending strings": "'\\" * 4_999,
    "numbers and spaces": "1" * 4_000 + " " * 4_000 + "(",
    "lengths": header(shape=f"({'1,' * 4_900})"),
    "fields": header(
        descr=f"[{','.join(f'({chr(39)}{i}{chr(39)},{chr(39)}f{chr(39)})' for i in range(750))}]"
    ),
    "comma string": header(descr=f"'{'f,' * 4_900}f'"),
    "nested sub-arrays": header(descr="(" * 95 + "'f'" + ",(9,))" * 95),
    "deep fields": header(descr="[('a'," * 60 + "'f'" + ")]" * 60),
    "spaces": header(descr=f"'{' ' * 9_900}f4'"),
}


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_takes_little_time_and_memory(name, version):
    head = framed(HOSTILE[name], version)
    verdict = judged(head)
    start = time.perf_counter()
    assert ours(head) == verdict
    assert time.perf_counter() - start < 1
    tracemalloc.start()
    ours(head)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6_000_000


def test_a_length_of_four_gigabytes_is_refused_before_it_is_read():
    prefix = MAGIC + b"\2\0" + b"\xff" * 4
    with pytest.raises(
        HeaderError, match=r"max_header_size=10,000.*pass max_header_size=4294967295"
    ):
        head_nbytes(prefix, max_header_size=10_000)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_longest_header_is_counted_in_characters_as_numpy_does(version):
    name = "é" * 3000
    text = header(descr=f"[('{name}', '<f4')]").strip().ljust(10_000)
    assert judged(framed(text, version)) is not None
    assert ours(framed(text, version)) == judged(framed(text, version))
    with pytest.raises(HeaderError, match="pass max_header_size=10001"):
        read(framed(text + " ", version))
    assert read(framed(text + " ", version), max_header_size=10_001).shape == (3, 2)


def test_a_header_that_is_longer_than_the_file_is_cut_short():
    with pytest.raises(HeaderError, match=r"cut short: it promises 128 bytes, the file holds 100"):
        read(encode(3, "f4", "C", align=64)[:100])


# --- laws ---------------------------------------------------------------------------------------

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
SCALARS = "b1 i1 u1 <i2 >i4 <u8 <f2 >f4 <f8 <c8 >c16 <g >G S5 <U3 V3 <M8[ns] >M8[7D] <m8[ms]"
scalars = st.sampled_from([np.dtype(name).str for name in SCALARS.split(" ")])
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
orders = st.sampled_from(["C", "F"])


@st.composite
def structures(draw, inner):
    fields = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    entries = [
        (name, draw(inner), draw(st.lists(st.integers(1, 3), max_size=2).map(tuple)))
        for name in fields
    ]
    return np.dtype(entries, align=draw(st.booleans()))


dtypes = st.recursive(scalars.map(np.dtype), structures, max_leaves=5)


@given(shapes, dtypes, orders, st.sampled_from([1, 16, 64, 4096]))
def test_headers_round_trip_and_numpy_agrees(shape, dtype, order, align):
    head = encode(shape, dtype, order, align=align)
    layout = read(head)
    assert layout == Layout(shape=shape, dtype=dtype, order=order, offset=len(head))
    assert len(head) % align == 0
    assert head.endswith(b"\n")
    assume(layout.nbytes <= len(PLENTY))
    assert judged(head) is not None
    assert ours(head) == judged(head)


@given(shapes, dtypes, orders)
def test_headers_that_numpy_writes_are_read(shape, dtype, order):
    array = np.zeros(shape, dtype, order)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy tells that versions 2.0 and 3.0 are newer
        np.save(file, array)
    layout = read(file.getvalue())
    assert (layout.shape, layout.dtype) == (array.shape, array.dtype)
    assert layout.offset == len(file.getvalue()) - array.nbytes
    if not (array.flags.c_contiguous and array.flags.f_contiguous):
        assert layout.order == ("C" if array.flags.c_contiguous else "F")


@settings(max_examples=300)
@given(st.sampled_from(sorted(READ_BY_NUMPY)), st.data())
def test_bytes_that_are_changed_in_a_header_change_nothing_in_our_agreement(name, data):
    head = bytearray(READ_BY_NUMPY[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(head) - 1))
        piece = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"L", b"(", b")", b"0", b"-", b"'"])
        )
        head[at : at + data.draw(st.integers(0, 3))] = piece
        assume(head)
    assert ours(bytes(head)) == judged(bytes(head))


snippets = ["L", " L", "True", "None", "'<f4'", "(2,)", "'|V3'", "'|O'", "('<i2', (1,))", "9" * 19]
pieces = st.sampled_from([*string.printable, *snippets, "('a', '<f4')", "[('a', '<i2', (2,))]"])


@settings(max_examples=500)
@given(st.sampled_from(sorted(READ_BY_NUMPY)), st.sampled_from([1, 2, 3]), st.data())
def test_text_that_is_changed_in_a_header_changes_nothing_in_our_agreement(name, version, data):
    start = 10 if READ_BY_NUMPY[name][6] == 1 else 12
    text = READ_BY_NUMPY[name][start:].decode("utf-8" if version == 3 else "latin-1", "replace")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(pieces) + text[at + data.draw(st.integers(0, 5)) :]
    head = framed(text.encode("utf-8" if version == 3 else "latin-1", "replace"), version)
    assert ours(head) == judged(head)


literals = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**66)
    | st.floats()
    | names
    | st.binary(max_size=3)
    | scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.tuples(names | st.just("") | st.tuples(names, names), scalars | literals) | st.tuples(
    names, scalars, literals | shapes
)


@settings(max_examples=400)
@given(
    descr=scalars | st.lists(fields, max_size=3) | st.tuples(scalars, shapes) | literals,
    fortran_order=st.booleans() | literals,
    shape=shapes | st.lists(st.integers(-2, 2**64), max_size=3).map(tuple) | literals,
    version=st.sampled_from([1, 2, 3]),
)
@example(descr={"af": 1}, fortran_order=False, shape=(2,), version=1)
def test_any_literal_is_judged_as_numpy_judges_it(descr, fortran_order, shape, version):
    text = repr({"descr": descr, "fortran_order": fortran_order, "shape": shape})
    head = framed(text.encode("utf-8" if version == 3 else "latin-1", "replace"), version)
    verdict = ours(head)
    if verdict is None and isinstance(shape, tuple) and 0 in shape:
        return  # see test_an_array_of_nothing_that_no_file_could_hold
    assert verdict == judged(head)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_with_a_header_error(junk):
    for head in (junk, MAGIC + junk, MAGIC + b"\1\0" + junk):
        assert ours(head) == judged(head)


# --- writing ------------------------------------------------------------------------------------


def test_the_data_start_at_the_page_in_version_1_and_in_the_usual_order_of_keys():
    head = encode((3, 4), ">f8", "F", align=4096)
    assert head[:8] == MAGIC + b"\1\0"
    assert head[10:].startswith(b"{'descr': '>f8', 'fortran_order': True, 'shape': (3, 4), }  ")
    assert len(head) == 4096


@pytest.mark.parametrize("align", [4096, 8192])
def test_plain_np_load_reads_what_is_aligned_to_a_page(align):
    array = np.arange(6.0).reshape(2, 3)
    head = encode(array.shape, array.dtype, "C", align=align)
    np.testing.assert_array_equal(np.load(io.BytesIO(head + array.tobytes())), array)


@pytest.mark.parametrize("align", [12_288, 16_384, 2**21])
def test_an_alignment_that_np_load_would_refuse_is_refused_with_the_reason(align):
    with pytest.raises(LayoutError, match=r"np\.load refuses a header of more than 10,000 bytes"):
        encode(3, "f4", "C", align=align)


@pytest.mark.parametrize(("count", "version"), [(100, 1), (900, 1), (9_000, 2)])
def test_a_long_descr_takes_the_oldest_version_that_holds_it(count, version):
    dtype = np.dtype([(f"f{i}", "<f4") for i in range(count)])
    head = encode(3, dtype, "C", align=64)
    assert head[6] == version
    assert read(head, max_header_size=len(head)).dtype == dtype


@pytest.mark.parametrize(("name", "version"), [("a", 1), ("Größe", 1), ("名", 3)])
def test_names_beyond_latin_1_take_version_3(name, version):
    assert encode(3, [(name, "<f4")], "C", align=64)[6] == version


def test_what_a_header_cannot_say_is_not_written():
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 2]})
    with pytest.raises(HeaderError, match="none overlapping"):
        encode(3, overlapping, "C", align=64)
    nameless = np.dtype({"names": ["", "a"], "formats": ["V3", "<f4"]})  # reads back as padding
    with pytest.raises(HeaderError, match="cannot express"):
        encode(3, nameless, "C", align=64)
    with pytest.raises(LayoutError, match="Python objects"):
        encode(3, object, "C", align=64)
    with pytest.raises(LayoutError, match="align must be >= 1"):
        encode(3, "f4", "C", align=0)


def test_lengths_of_numpy_are_written_as_plain_numbers():
    assert b"'shape': (3, 4), }" in encode(np.array([3, 4]), "f4", "C", align=64)
