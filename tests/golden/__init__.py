"""What streamsvm did before its house was rebuilt: golden outputs, and the comparison with them.

python -m tests.golden.record                   compare all of them with this checkout
python -m tests.golden.record inputs --write    write some anew
"""
