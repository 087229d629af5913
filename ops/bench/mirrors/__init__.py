"""Our mirror beside MirrorMaker 2: what `mirrormaker2` of `ops.bench` is made of."""
