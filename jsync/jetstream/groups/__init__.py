"""Consumer groups by key: the partitions of a stream, shared by members.

The format is that of orbit.go's `pcgroups`, whose members may be in the same group.

    engine   configurations, partitions, consumers, decisions (pure)
    driver   a member at work: joins, pulls, hands over
    member   what `ConsumerGroup.join` returns
    group    a group: its members, its lag
    manager  the calls of `JetStream` for groups
"""
