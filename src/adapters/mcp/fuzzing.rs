//! What holds for any bytes that MCP servers write: functions that panic where it does not. For fuzz targets (`tests/fuzz`) and
//! for tests, which feed them a corpus and mutations of it; nothing of the service calls them.

use futures::executor::block_on;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, RequestId};

use crate::adapters::mcp::exchange::{Answer, Exchange, Inbound, Listeners, Purpose, Ticket};
use crate::adapters::mcp::transport::lines::{Line, Lines};

/// Largest message that is taken, in bytes.
const LIMIT: usize = 4_096;
/// Longest text of an error that is kept, in bytes; hidden characters are written out.
const MAX_ERROR: usize = 20_000;
/// The request that waits for an answer.
const ID: i64 = 7;

/// What a server writes while a call waits for its answer: no byte is lost between lines, and whatever answers the call does so once,
/// with a result as it was written or an error of bounded size.
///
/// # Panics
/// Where that does not hold.
pub fn exchange(bytes: &[u8]) {
    let exchange = Exchange::default();
    let ticket = waiting(&exchange);
    let mut lines = Lines::new(bytes, LIMIT);
    let (mut read, mut answers) = (0, 0);
    loop {
        let inbound = match block_on(lines.next()) {
            Line::End => break,
            Line::Message(line) => {
                assert!(line.len() <= LIMIT);
                read += line.len() + 1;
                exchange.inbound(&line)
            }
            Line::TooLong { head, tail, length } => {
                assert!(length > LIMIT && head.len() <= LIMIT && tail.len() <= LIMIT);
                read += length + 1;
                exchange.fail_oversized(&head, &tail)
            }
            Line::Endless { length } => {
                assert!(length / Lines::<&[u8]>::ENDLESS > LIMIT);
                return;
            }
        };
        if let Inbound::Answered { id, .. } = inbound {
            assert_eq!(id, RequestId::Number(ID));
            answers += 1;
            match ticket.take() {
                // As it was written, unless a text that is not UTF-8 or not JSON had to be mended.
                Some(Answer::Result { result, bytes }) => assert!(!result.get().is_empty() && bytes <= LIMIT),
                Some(Answer::Error { message, .. }) => assert!(message.len() <= MAX_ERROR),
                Some(Answer::TooLarge { .. } | Answer::Malformed) => {}
                None => unreachable!("the request was answered with nothing"),
            }
        }
    }
    assert!(answers <= 1 && ticket.take().is_none());
    assert!(read == bytes.len() || read == bytes.len() + 1, "{read} of {} bytes were read", bytes.len());
}

/// A call that was sent.
fn waiting(exchange: &Exchange) -> Ticket {
    let ticket = Ticket::new(Purpose::Call, LIMIT, Listeners::default());
    let mut request = CallToolRequest::new(CallToolRequestParams::new("tool"));
    request.extensions.insert(ticket.clone());
    let mut message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(ID));
    exchange.outbound(&mut message);
    ticket
}
