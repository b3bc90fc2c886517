/* Every function with NULL for every pointer and 0 for every number, in the order of the header: an error, or an empty
 * answer.
 */

#include "check.h"

#define REFUSED(call) FAILS(UNISONIC_STATUS_INVALID_ARGUMENT, "", call)
#define FREED(call) CHECK(call == UNISONIC_STATUS_OK)

void test_nulls(void)
{
    CHECK(unisonic_error_status(NULL) == UNISONIC_STATUS_OK);
    CHECK(unisonic_error_message(NULL)[0] == '\0');
    CHECK(unisonic_error_message_len(NULL) == 0);
    unisonic_error_free(NULL);
    REFUSED(unisonic_library_open(0, NULL, NULL, &error));
    FREED(unisonic_library_close(NULL));
    CHECK(unisonic_buffer_data(NULL) == NULL);
    CHECK(unisonic_buffer_len_bytes(NULL) == 0);
    CHECK(unisonic_buffer_tokens(NULL) == NULL);
    CHECK(unisonic_buffer_len_tokens(NULL) == 0);
    FREED(unisonic_buffer_free(NULL));
    REFUSED(unisonic_device_list_new(NULL, NULL, &error));
    CHECK(unisonic_device_list_len(NULL) == 0);
    REFUSED(unisonic_device_list_get(NULL, 0, NULL, &error));
    FREED(unisonic_device_list_free(NULL));
    REFUSED(unisonic_cancel_new(NULL, NULL, &error));
    REFUSED(unisonic_cancel_request(NULL, &error));
    REFUSED(unisonic_cancel_reset(NULL, &error));
    FREED(unisonic_cancel_free(NULL));
    REFUSED(unisonic_tokenizer_open(NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_tokenizer_encode(NULL, NULL, 0, 0, NULL, &error));
    REFUSED(unisonic_tokenizer_decode(NULL, NULL, 0, 0, NULL, &error));
    CHECK(unisonic_tokenizer_vocab_len(NULL) == 0);
    CHECK(unisonic_tokenizer_bos(NULL) == UNISONIC_NO_TOKEN);
    CHECK(unisonic_tokenizer_eos(NULL) == UNISONIC_NO_TOKEN);
    CHECK(unisonic_tokenizer_is_stop(NULL, 0) == 0);
    FREED(unisonic_tokenizer_free(NULL));
    REFUSED(unisonic_detokenizer_new(NULL, NULL, &error));
    REFUSED(unisonic_detokenizer_push(NULL, 0, NULL, &error));
    FREED(unisonic_detokenizer_free(NULL));
    REFUSED(unisonic_chat_new(NULL, NULL, &error));
    REFUSED(unisonic_chat_add(NULL, NULL, 0, NULL, 0, &error));
    REFUSED(unisonic_chat_set_tools(NULL, NULL, 0, &error));
    REFUSED(unisonic_chat_encode(NULL, NULL, NULL, &error));
    FREED(unisonic_chat_free(NULL));
    REFUSED(unisonic_model_load(NULL, NULL, 0, NULL, NULL, &error));
    REFUSED(unisonic_model_tokenizer(NULL, NULL, &error));
    REFUSED(unisonic_model_get_info(NULL, NULL, &error));
    REFUSED(unisonic_model_get_memory(NULL, NULL, &error));
    FREED(unisonic_model_free(NULL));
    REFUSED(unisonic_sampler_new(NULL, NULL, NULL, &error));
    FREED(unisonic_sampler_free(NULL));
    CHECK(unisonic_completion_tokens(NULL) == NULL);
    CHECK(unisonic_completion_len_tokens(NULL) == 0);
    CHECK(unisonic_completion_text(NULL) == NULL);
    CHECK(unisonic_completion_text_len(NULL) == 0);
    CHECK(unisonic_completion_stop(NULL) == UNISONIC_STOP_CANCELLED);
    CHECK(unisonic_completion_receipt(NULL) == NULL);
    FREED(unisonic_completion_free(NULL));
    REFUSED(unisonic_session_new(NULL, NULL, NULL, &error));
    REFUSED(unisonic_session_append(NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_session_get_logits(NULL, NULL, 0, &error));
    REFUSED(unisonic_session_sample(NULL, NULL, NULL, &error));
    CHECK(unisonic_session_len(NULL) == 0);
    REFUSED(unisonic_session_get_tokens(NULL, NULL, &error));
    REFUSED(unisonic_session_truncate(NULL, 0, &error));
    REFUSED(unisonic_session_fork(NULL, NULL, &error));
    REFUSED(unisonic_session_save(NULL, NULL, &error));
    REFUSED(unisonic_session_restore(NULL, NULL, NULL, 0, NULL, &error));
    FREED(unisonic_session_free(NULL));
    REFUSED(unisonic_session_generate(NULL, NULL, 0, NULL, NULL, &error));
    REFUSED(unisonic_batch_new(NULL, NULL, NULL, &error));
    REFUSED(unisonic_batch_add(NULL, NULL, 0, NULL, NULL, &error));
    REFUSED(unisonic_batch_step(NULL, NULL, &error));
    REFUSED(unisonic_batch_run(NULL, &error));
    REFUSED(unisonic_batch_take(NULL, 0, NULL, &error));
    FREED(unisonic_batch_free(NULL));
    REFUSED(unisonic_receipt_verify(NULL, NULL, 0, NULL, &error));
    REFUSED(unisonic_model_embed(NULL, NULL, 0, NULL, 0, &error));
}
