"""The tree that scripts/gpu-check looks at, in one word."""
import hashlib

NOT_OF_THE_TREE = {"build", "runs", "shared", "__pycache__"}


def tree_hash(top):
    """Of everything that a build or a check is made of."""
    found = hashlib.sha256()
    folders = [path for path in top.iterdir()
               if path.is_dir() and not path.is_symlink() and path.name not in NOT_OF_THE_TREE and path.name[0] != "."]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for path in sorted([*files, *top.glob("CMakeLists.txt")]):
        found.update(f"{path.relative_to(top)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]
