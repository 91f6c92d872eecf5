"""Stores, streams, rollouts and games -> loaders: iterators of batches with state."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "arguments": "refuse_unknown",
        "chat_keywords": "ChatKeywords prepared_chat",
        "conversation": "ConversationDataLoader",
        "detect": "are_games are_rollouts journal_of kind_of refuse_journal refuse_nothing",
        "explain": "Source StoreSource StreamRows origins_of steps_of",
        "handover": "Agreement",
        "hooks": "PerRow per_row transform_batch",
        "lint_data": "lint",
        "loader": "DataLoader",
        "lost_data": "named_losses store_losses warn_of_losses warn_of_odd_group",
        "mixed": "MixedDataLoader",
        "objectives": "corrupt_spans fill_in_the_middle mask_tokens",
        "pretrain": "PretrainDataLoader example_loader",
        "rollout": "RolloutDataLoader",
        "rows": "USUAL_ROW RowOrigin RowShape RowSource Span padding_id row_facts",
        "self_play": "SelfPlayDataLoader example_self_play",
        "settings": "LoaderSettings SharedKeywords check_choice parse_bytes positive resolve whole",
        "show": "show_chat",
        "state": "PHASES_KIND check_data check_place check_samples check_source check_stream_order check_unit "
        "dump_run load_run merge_states",
    },
)
