"""What a masked capture keeps, by contract: the complete list of places in which a canary is found again.

A place is the path to it in an event (`[]` for any item; at the end `'` for a word and `#` for a number). Words are kept
only if they have the form of a code, an id, a model or a tool's name, as canaries have; texts with blanks are kept
nowhere. The list contains no unknown key of a dialect, no text, no prompt and no credential; of an error its type and
code, and its message only if that is one word and so may be a code. A change that adds a place to a dialect adds it
here: that states that the place holds no secret.
"""

# Of requests and responses. Ids, models and codes; sizes given in the request.
EXCHANGES = {
    "body max_completion_tokens #",
    "body max_tokens #",
    "body model",
    "body n #",
    "body service_tier",
    "error 400 code",
    "error 400 type",
    "error 429 code",
    "error 429 type",
    "error 500 code",
    "error 500 type",
    "line event name",
    "line id",
    "request header last-event-id",
    "response header anthropic-organization-id",
    "response header apim-request-id",
    "response header openai-organization",
    "response header openai-project",
    "response header request-id",
    "response header x-generation-id",
    "response header x-request-id",
}

# Of events, by dialect.
EVENTS = {
    "anthropic-completions": """
        error.type.' id.' log_id.' model.' stop_reason.' type.'
    """,
    "anthropic-messages": """
        content_block.id.' content_block.name.' content_block.tool_use_id.' content_block.type.' delta.stop_reason.'
        delta.type.' error.code.' error.request_id.' error.type.' index.# message.content.[].id.'
        message.content.[].name.' message.content.[].tool_use_id.' message.content.[].type.' message.id.'
        message.model.' message.role.' message.stop_reason.' message.type.'
        message.usage.cache_creation.ephemeral_1h_input_tokens.#
        message.usage.cache_creation.ephemeral_5m_input_tokens.# message.usage.cache_creation_input_tokens.#
        message.usage.cache_read_input_tokens.# message.usage.completion_tokens.# message.usage.input_tokens.#
        message.usage.output_tokens.# message.usage.prompt_tokens.# message.usage.service_tier.' request_id.' type.'
        usage.cache_creation_input_tokens.# usage.cache_read_input_tokens.# usage.completion_tokens.# usage.cost.#
        usage.input_tokens.# usage.iterations.[].cache_creation_input_tokens.#
        usage.iterations.[].cache_read_input_tokens.# usage.iterations.[].input_tokens.# usage.iterations.[].model.'
        usage.iterations.[].output_tokens.# usage.iterations.[].type.' usage.output_tokens.#
        usage.output_tokens_details.thinking_tokens.# usage.prompt_tokens.#
        usage.server_tool_use.code_execution_requests.# usage.server_tool_use.web_fetch_requests.#
        usage.server_tool_use.web_search_requests.#
    """,
    "bedrock-converse": """
        amazon-bedrock-invocationMetrics.cacheReadInputTokenCount.#
        amazon-bedrock-invocationMetrics.cacheWriteInputTokenCount.#
        amazon-bedrock-invocationMetrics.firstByteLatency.# amazon-bedrock-invocationMetrics.inputTokenCount.#
        amazon-bedrock-invocationMetrics.invocationLatency.# amazon-bedrock-invocationMetrics.outputTokenCount.#
        contentBlockDelta.contentBlockIndex.# contentBlockIndex.# contentBlockStop.contentBlockIndex.#
        error.status_code.# error.type.' messageStart.role.' messageStop.stopReason.'
        metadata.usage.cacheReadInputTokenCount.# metadata.usage.cacheWriteInputTokenCount.#
        metadata.usage.inputTokens.# metadata.usage.outputTokens.# metrics.latencyMs.# role.' serviceTier.type.'
        start.toolUse.name.' start.toolUse.toolUseId.' stopReason.' trace.promptRouter.invokedModelId.'
        usage.cacheDetails.[].inputTokens.# usage.cacheDetails.[].ttl.' usage.cacheReadInputTokenCount.#
        usage.cacheReadInputTokens.# usage.cacheWriteInputTokenCount.# usage.cacheWriteInputTokens.#
        usage.inputTokens.# usage.outputTokens.# usage.totalTokens.#
    """,
    "bedrock-text": """
        amazon-bedrock-invocationMetrics.firstByteLatency.# amazon-bedrock-invocationMetrics.inputTokenCount.#
        amazon-bedrock-invocationMetrics.invocationLatency.# amazon-bedrock-invocationMetrics.outputTokenCount.#
        completionReason.' error.type.' generation_token_count.# index.# inputTextTokenCount.#
        outputs.[].stop_reason.' prompt_token_count.# stop_reason.' totalOutputTextTokenCount.#
    """,
    "cohere-v1": """
        amazon-bedrock-invocationMetrics.firstByteLatency.# amazon-bedrock-invocationMetrics.inputTokenCount.#
        amazon-bedrock-invocationMetrics.invocationLatency.# amazon-bedrock-invocationMetrics.outputTokenCount.#
        error.type.' event_type.' finish_reason.' generation_id.' response.finish_reason.' response.generation_id.'
        response.meta.billed_units.input_tokens.# response.meta.billed_units.output_tokens.#
        response.meta.tokens.input_tokens.# response.meta.tokens.output_tokens.# response.response_id.'
        tool_call_delta.index.# tool_call_delta.name.' tool_calls.[].name.'
    """,
    "cohere-v2": """
        delta.finish_reason.' delta.message.content.type.' delta.message.role.' delta.message.tool_calls.function.name.'
        delta.message.tool_calls.id.' delta.message.tool_calls.type.' delta.usage.billed_units.classifications.#
        delta.usage.billed_units.input_tokens.# delta.usage.billed_units.output_tokens.#
        delta.usage.billed_units.search_units.# delta.usage.cached_tokens.# delta.usage.tokens.input_tokens.#
        delta.usage.tokens.output_tokens.# error.type.' id.' index.# type.'
    """,
    "dashscope": """
        code.' output.choices.[].finish_reason.' output.choices.[].index.# output.choices.[].message.role.'
        output.choices.[].message.tool_calls.[].function.name.' output.choices.[].message.tool_calls.[].id.'
        output.choices.[].message.tool_calls.[].index.# output.finish_reason.' request_id.' usage.input_tokens.#
        usage.models.[].input_tokens.# usage.models.[].model_id.' usage.models.[].output_tokens.# usage.output_tokens.#
        usage.output_tokens_details.reasoning_tokens.# usage.prompt_tokens_details.cached_tokens.# usage.total_tokens.#
    """,
    "gemini": """
        [].error.code.# [].error.status.' candidates.[].content.parts.[].functionCall.id.'
        candidates.[].content.parts.[].functionCall.name.' candidates.[].content.parts.[].toolCall.id.'
        candidates.[].content.parts.[].toolCall.toolType.' candidates.[].finishReason.# candidates.[].finishReason.'
        candidates.[].index.# createTime.' error.code.# error.status.' modelVersion.' promptFeedback.blockReason.#
        promptFeedback.blockReason.' response.candidates.[].finishReason.' response.candidates.[].index.#
        response.modelVersion.' response.responseId.' response.usageMetadata.candidatesTokenCount.#
        response.usageMetadata.promptTokenCount.# response.usageMetadata.promptTokensDetails.[].modality.'
        response.usageMetadata.promptTokensDetails.[].tokenCount.# response.usageMetadata.thoughtsTokenCount.#
        response.usageMetadata.totalTokenCount.# responseId.' usageMetadata.cacheTokensDetails.[].modality.'
        usageMetadata.cacheTokensDetails.[].tokenCount.# usageMetadata.cachedContentTokenCount.#
        usageMetadata.candidatesTokenCount.# usageMetadata.candidatesTokensDetails.[].modality.'
        usageMetadata.candidatesTokensDetails.[].tokenCount.# usageMetadata.promptTokenCount.#
        usageMetadata.promptTokensDetails.[].modality.' usageMetadata.promptTokensDetails.[].tokenCount.#
        usageMetadata.serviceTier.' usageMetadata.thoughtsTokenCount.# usageMetadata.toolUsePromptTokenCount.#
        usageMetadata.toolUsePromptTokensDetails.[].modality.' usageMetadata.toolUsePromptTokensDetails.[].tokenCount.#
        usageMetadata.totalTokenCount.# usageMetadata.trafficType.# usageMetadata.trafficType.'
    """,
    "gemini-interactions": """
        content.type.' delta.content.type.' delta.type.# delta.type.' error.code.' event_id.' event_type.' index.#
        interaction.id.' interaction.model.' interaction.object.' interaction.service_tier.' interaction.status.'
        interaction.steps.[].content.[].type.' interaction.steps.[].id.' interaction.steps.[].name.'
        interaction.steps.[].summary.[].type.' interaction.steps.[].type.'
        interaction.usage.grounding_tool_count.[].count.# interaction.usage.grounding_tool_count.[].search_query_count.#
        interaction.usage.grounding_tool_count.[].type.' interaction.usage.input_tokens_by_modality.[].modality.'
        interaction.usage.input_tokens_by_modality.[].tokens.# interaction.usage.output_tokens_by_modality.[].modality.'
        interaction.usage.output_tokens_by_modality.[].tokens.# interaction.usage.total_cached_tokens.#
        interaction.usage.total_input_tokens.# interaction.usage.total_output_tokens.#
        interaction.usage.total_thought_tokens.# interaction.usage.total_tokens.#
        interaction.usage.total_tool_use_tokens.# interaction_id.' status.# status.' step.id.' step.name.' step.type.'
        usage.input_tokens_by_modality.[].modality.' usage.input_tokens_by_modality.[].tokens.#
        usage.total_cached_tokens.# usage.total_input_tokens.# usage.total_output_tokens.# usage.total_thought_tokens.#
        usage.total_tokens.# usage.total_tool_use_tokens.#
    """,
    "llama-cpp-native": """
        error.code.# error.type.' index.# model.' stop_type.' timings.cache_n.# timings.predicted_ms.#
        timings.predicted_n.# timings.prompt_ms.# timings.prompt_n.# tokens_cached.# tokens_evaluated.#
        tokens_predicted.#
    """,
    "ollama": """
        done_reason.' eval_count.# eval_duration.# load_duration.# message.role.'
        message.tool_calls.[].function.name.' message.tool_calls.[].id.' model.' prompt_eval_count.#
        prompt_eval_duration.# total_duration.#
    """,
    "openai-chat": """
        base_resp.status_code.# base_resp.status_code.' choices.[].delta.audio.expires_at.# choices.[].delta.audio.id.'
        choices.[].delta.content.[].thinking.[].type.' choices.[].delta.content.[].type.'
        choices.[].delta.function_call.name.' choices.[].delta.images.[].type.' choices.[].delta.name.'
        choices.[].delta.reasoning_details.[].index.# choices.[].delta.reasoning_details.[].type.'
        choices.[].delta.role.' choices.[].delta.tool_calls.[].custom.name.'
        choices.[].delta.tool_calls.[].function.name.' choices.[].delta.tool_calls.[].id.'
        choices.[].delta.tool_calls.[].index.# choices.[].delta.tool_calls.[].type.'
        choices.[].delta.tool_calls.function.name.' choices.[].delta.tool_calls.id.' choices.[].delta.tool_calls.index.#
        choices.[].delta.tool_calls.type.' choices.[].delta.tool_use_id.' choices.[].delta.type.'
        choices.[].error.code.# choices.[].finish_reason.# choices.[].finish_reason.' choices.[].index.#
        choices.[].message.role.' choices.[].message.tool_calls.[].function.name.' choices.[].message.tool_calls.[].id.'
        choices.[].message.tool_calls.[].type.' choices.[].native_finish_reason.' choices.[].usage.completion_tokens.#
        choices.[].usage.prompt_tokens.# choices.[].usage.total_tokens.# code.# created.# detail.[].type.' detail.code.'
        detail.status_code.# error.code.# error.code.' error.status_code.# error.type.# error.type.'
        final_result.choices.[].delta.role.' final_result.choices.[].finish_reason.' final_result.choices.[].index.#
        final_result.created.# final_result.id.' final_result.model.' final_result.object.'
        final_result.usage.completion_tokens.# final_result.usage.prompt_tokens.# final_result.usage.total_tokens.# id.'
        latency_checkpoint.engine_ttft_ms.# latency_checkpoint.pre_inference_ms.# latency_checkpoint.service_ttft_ms.#
        latency_checkpoint.total_duration_ms.# latency_checkpoint.user_visible_ttft_ms.# model.' model_id.' object.'
        orchestration_result.choices.[].delta.role.' orchestration_result.choices.[].delta.tool_calls.[].function.name.'
        orchestration_result.choices.[].delta.tool_calls.[].id.'
        orchestration_result.choices.[].delta.tool_calls.[].index.#
        orchestration_result.choices.[].delta.tool_calls.[].type.' orchestration_result.choices.[].finish_reason.'
        orchestration_result.choices.[].index.# orchestration_result.created.# orchestration_result.id.'
        orchestration_result.model.' orchestration_result.object.' perf_metrics.server-processing-time.'
        perf_metrics.server-time-to-first-token.' request_id.' sansa.routed_model.' sansa.routing_latency_ms.#
        service_tier.' sla_metrics.ttft_ms.# status_code.# system_fingerprint.' time_info.queue_time.#
        time_info.total_time.# timings.predicted_ms.# timings.prompt_ms.# type.' usage.cache_creation_input_tokens.#
        usage.cache_read_input_tokens.# usage.cached_tokens.# usage.citation_tokens.# usage.completion_time.#
        usage.completion_tokens.# usage.completion_tokens_details.accepted_prediction_tokens.#
        usage.completion_tokens_details.audio_tokens.# usage.completion_tokens_details.image_tokens.#
        usage.completion_tokens_details.reasoning_tokens.# usage.completion_tokens_details.rejected_prediction_tokens.#
        usage.cost.# usage.cost.input_tokens_cost.# usage.cost.output_tokens_cost.# usage.cost.request_cost.#
        usage.cost.total_cost.# usage.cost_details.upstream_inference_cost.# usage.cost_in_usd_ticks.#
        usage.input_tokens.# usage.input_tokens_details.cached_tokens.# usage.market_cost.# usage.num_search_queries.#
        usage.num_sources_used.# usage.output_tokens.# usage.output_tokens_details.reasoning_tokens.#
        usage.prompt_audio_seconds.# usage.prompt_cache_hit_tokens.# usage.prompt_cache_miss_tokens.#
        usage.prompt_cache_write_tokens.# usage.prompt_time.# usage.prompt_tokens.#
        usage.prompt_tokens_details.audio_tokens.#
        usage.prompt_tokens_details.cache_creation.ephemeral_5m_input_tokens.#
        usage.prompt_tokens_details.cache_creation_input_tokens.# usage.prompt_tokens_details.cache_write_tokens.#
        usage.prompt_tokens_details.cached_creation_tokens.# usage.prompt_tokens_details.cached_tokens.#
        usage.prompt_tokens_details.image_tokens.# usage.prompt_tokens_details.text_tokens.# usage.queue_time.#
        usage.reasoning_tokens.# usage.server_tool_use_details.tool_calls_executed.#
        usage.server_tool_use_details.tool_calls_requested.# usage.server_tool_use_details.web_search_requests.#
        usage.service_tier.' usage.time_per_output_token_ms.# usage.time_to_first_token_ms.# usage.tokens_per_second.#
        usage.total_time.# usage.total_tokens.# x_groq.id.' x_groq.usage.completion_time.#
        x_groq.usage.completion_tokens.# x_groq.usage.prompt_time.# x_groq.usage.prompt_tokens.#
        x_groq.usage.queue_time.# x_groq.usage.total_time.# x_groq.usage.total_tokens.#
    """,
    "openai-completions": """
        base_resp.status_code.# choices.[].delta.role.' choices.[].finish_reason.' choices.[].index.#
        choices.[].native_finish_reason.' created.# error.type.' id.' model.' object.' type.'
        usage.cache_creation_input_tokens.# usage.cache_read_input_tokens.# usage.completion_tokens.# usage.cost.#
        usage.prompt_tokens.# usage.prompt_tokens_details.cache_creation_input_tokens.#
        usage.prompt_tokens_details.cached_tokens.# usage.total_tokens.#
    """,
    "openai-images": """
        error.code.' error.type.' sequence_number.# type.' usage.input_tokens.#
        usage.input_tokens_details.image_tokens.# usage.input_tokens_details.text_tokens.# usage.output_tokens.#
        usage.output_tokens_details.image_tokens.# usage.output_tokens_details.text_tokens.# usage.total_tokens.#
    """,
    "openai-realtime": """
        content_index.# event_id.' item.call_id.' item.content.[].type.' item.id.' item.name.' item.role.'
        item.status.' item.type.' item_id.' output_index.# part.type.' response.id.' response.object.'
        response.status.' response.status_details.error.code.' response.status_details.error.type.'
        response.status_details.reason.' response.status_details.type.'
        response.usage.input_token_details.audio_tokens.# response.usage.input_token_details.cached_tokens.#
        response.usage.input_token_details.cached_tokens_details.audio_tokens.#
        response.usage.input_token_details.cached_tokens_details.image_tokens.#
        response.usage.input_token_details.cached_tokens_details.text_tokens.#
        response.usage.input_token_details.image_tokens.# response.usage.input_token_details.text_tokens.#
        response.usage.input_tokens.# response.usage.output_token_details.audio_tokens.#
        response.usage.output_token_details.text_tokens.# response.usage.output_tokens.#
        response.usage.total_tokens.# response_id.' type.'
    """,
    "openai-responses": """
        base_resp.status_code.# content_index.# error.code.' error.type.' item.call_id.' item.content.[].type.'
        item.id.' item.name.' item.role.' item.status.' item.summary.[].type.' item.type.' item_id.' output_index.#
        part.type.' response.created_at.# response.error.code.' response.id.' response.incomplete_details.reason.'
        response.model.' response.object.' response.output.[].call_id.' response.output.[].content.[].type.'
        response.output.[].id.' response.output.[].name.' response.output.[].role.' response.output.[].status.'
        response.output.[].summary.[].type.' response.output.[].type.' response.service_tier.' response.status.'
        response.tool_usage.image_gen.input_tokens.# response.tool_usage.image_gen.input_tokens_details.image_tokens.#
        response.tool_usage.image_gen.input_tokens_details.text_tokens.# response.tool_usage.image_gen.output_tokens.#
        response.tool_usage.image_gen.output_tokens_details.image_tokens.#
        response.tool_usage.image_gen.output_tokens_details.text_tokens.# response.tool_usage.image_gen.total_tokens.#
        response.tool_usage.web_search.num_requests.# response.usage.completion_tokens.#
        response.usage.completion_tokens_details.reasoning_tokens.# response.usage.cost.#
        response.usage.cost.cache_read_cost.# response.usage.cost.currency.' response.usage.cost.input_cost.#
        response.usage.cost.output_cost.# response.usage.cost.total_cost.#
        response.usage.cost_details.upstream_inference_cost.#
        response.usage.cost_details.upstream_inference_input_cost.#
        response.usage.cost_details.upstream_inference_output_cost.# response.usage.cost_in_usd_ticks.#
        response.usage.input_tokens.# response.usage.input_tokens_details.audio_tokens.#
        response.usage.input_tokens_details.cache_creation_input_tokens.#
        response.usage.input_tokens_details.cache_read_input_tokens.#
        response.usage.input_tokens_details.cache_write_tokens.#
        response.usage.input_tokens_details.cached_creation_tokens.# response.usage.input_tokens_details.cached_tokens.#
        response.usage.num_server_side_tools_used.# response.usage.num_sources_used.# response.usage.output_tokens.#
        response.usage.output_tokens_details.reasoning_tokens.# response.usage.prompt_tokens.#
        response.usage.prompt_tokens_details.cached_tokens.#
        response.usage.server_side_tool_usage_details.code_interpreter_calls.#
        response.usage.server_side_tool_usage_details.web_search_calls.#
        response.usage.server_side_tool_usage_details.x_search_calls.#
        response.usage.tool_calls_details.fetch_url.invocation.#
        response.usage.tool_calls_details.search_web.invocation.# response.usage.total_tokens.# sequence_number.#
        summary_index.# type.' usage.input_tokens.# usage.output_tokens.# usage.total_tokens.#
    """,
    "openai-speech": """
        error.code.' error.type.' type.' usage.input_tokens.# usage.output_tokens.# usage.total_tokens.#
    """,
    "openai-transcription": """
        error.code.' error.type.' type.' usage.input_token_details.audio_tokens.#
        usage.input_token_details.text_tokens.# usage.input_tokens.# usage.output_tokens.# usage.seconds.#
        usage.total_tokens.# usage.type.'
    """,
    "replicate": """
        reason.'
    """,
    "sourcegraph": """
        stopReason.'
    """,
    "tgi-native": """
        details.finish_reason.' details.generated_tokens.# details.input_length.# error_type.'
    """,
    "triton": """
        finish_reason.' model_name.' num_input_tokens.#
    """,
    "watsonx": """
        errors.[].code.' model_id.' results.[].generated_token_count.# results.[].input_token_count.#
        results.[].stop_reason.' status_code.# trace.'
    """,
    "workers-ai": """
        errors.[].code.# finish_reason.' tool_calls.[].function.name.' tool_calls.[].id.' tool_calls.[].index.#
        tool_calls.[].name.' usage.completion_tokens.# usage.prompt_tokens.# usage.total_tokens.#
    """,
}
