"""Which program's file is this? Recognised by its first bytes, to say what opens it instead."""

from __future__ import annotations

__all__ = ["HEAD_NBYTES", "describe"]

HEAD_NBYTES = 64
"""How many bytes of a file `describe` looks at."""

_REWRITE = "nothing is unpickled here; write the array with np.save"
_UNPACKED = "unpack it first: the bytes of a compressed file cannot be mapped"

# First bytes, what they mean, what to do. The first that fits is taken.
_FORMATS = (
    (b"PK\x03\x04", "a zip archive such as .npz", "unzip it, and open the .npy files within"),
    (b"PK\x05\x06", "an empty zip archive", "nothing is in it"),
    (b"\x1f\x8b", "gzip", _UNPACKED),
    (b"BZh", "bzip2", _UNPACKED),
    (b"\xfd7zXZ\x00", "xz", _UNPACKED),
    (b"\x28\xb5\x2f\xfd", "zstd", _UNPACKED),
    (b"\x04\x22\x4d\x18", "lz4", _UNPACKED),
    (b"\x89HDF\r\n\x1a\n", "HDF5 or NetCDF-4", "open it with h5py or xarray"),
    (b"CDF\x01", "NetCDF", "open it with xarray or scipy.io.netcdf_file"),
    (b"CDF\x02", "NetCDF", "open it with xarray or scipy.io.netcdf_file"),
    (b"CDF\x05", "NetCDF", "open it with xarray"),
    (b"MATLAB 7.3", "a MATLAB file of version 7.3, which is HDF5", "open it with h5py"),
    (b"MATLAB", "a MATLAB file", "open it with scipy.io.loadmat"),
    (b"PAR1", "Parquet", "open it with dask.dataframe.read_parquet"),
    (b"ARROW1", "Arrow", "open it with pyarrow"),
    (b"SIMPLE  =", "FITS", "open it with astropy.io.fits"),
    (b"II*\x00", "TIFF", "open it with tifffile"),
    (b"MM\x00*", "TIFF", "open it with tifffile"),
    (b"GRIB", "GRIB", "open it with xarray and cfgrib"),
    (b"version https://git-lfs", "a Git LFS pointer, not the data", "run git lfs pull"),
    (b"/annex/objects/", "a git-annex pointer, not the data", "run git annex get"),
    (b"<!DOCTYPE", "a web page, not the data", "download the file again"),
    (b"<html", "a web page, not the data", "download the file again"),
    *((bytes([0x80, protocol]), "a pickle", _REWRITE) for protocol in (2, 3, 4, 5)),
)


def describe(head: bytes) -> str:
    r"""Say what a file is that is not a ``.npy``.

    Parameters
    ----------
    head : bytes
        The first ``HEAD_NBYTES`` bytes, or all of a shorter file.

    Returns
    -------
    str
        The rest of a sentence that begins with the path.

    Examples
    --------
    >>> print("run.npy is", describe(b"\x1f\x8b\x08\x00"))
    run.npy is gzip, not .npy; unpack it first: the bytes of a compressed file cannot be mapped
    >>> print("run.npy is", describe(b"1.0,2.0"))
    run.npy is not .npy: it begins with b'1.0,2.0'; if it is raw data, use open_raw
    """
    if not head:
        return "empty"
    for magic, name, remedy in _FORMATS:
        if head.startswith(magic):
            return f"{name}, not .npy; {remedy}"
    return f"not .npy: it begins with {head[:8]!r}; if it is raw data, use open_raw"
